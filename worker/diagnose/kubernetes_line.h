// What Kubernetes writes: the lines in which kubectl shows objects and their events, and the
// records in which a container's runtime keeps what that writes.
#pragma once

#include <string>
#include <string_view>

namespace muster::worker {

// Whether a line is an event as kubectl prints it, described or listed: its type is its first word,
// or stands in a column of its own after the age, or after the namespace and the age, or, after
// whatever a collector wrote, before a reason and an object.
bool IsEvent(std::string_view line);

// Whether a line names a reason of an event's.
bool MayTellOfEvent(std::string_view line);

// The event as kubectl lists it that a line tells of in other words: "[Warning] FailedMount
// pod/train-0: MESSAGE". Empty if it tells of none, or as kubectl does. `body` is the end of
// `line`.
std::string AsListed(std::string_view line, std::string_view body);

// "train-0   0/1   RunContainerError   3 (2m ago)   5m", with or without the namespace before it,
// as kubectl lists pods.
bool IsListedPod(std::string_view line);

// Whether a line is of an object's status, as kubectl describes or lists it.
bool IsStatusLine(std::string_view line);

// Whether such a line says by its place alone that it is one: "    State:          Terminated", or
// a listed pod. A program's own words may begin like "Status: ".
bool IsStateLine(std::string_view line);

// "      Finished:     Thu, 01 Jan 2026 12:08:33 +0000", the end of the container that the lines
// before it are about.
bool IsEndOfContainer(std::string_view line);

// The NAME of "pod/NAME" in an event's column of its own, as kubectl lists them, or that of a pod
// that it lists, or "node/NAME"; empty otherwise.
std::string_view ListedObject(std::string_view line);

// VALUE of "KEY: VALUE", or of "\"KEY\": \"VALUE\",", as kubectl shows objects in YAML or JSON;
// empty if the line isn't one.
std::string_view KeyedValue(std::string_view line, std::string_view key);

// An event as kubectl lists it.
std::string EventOf(std::string_view object, std::string_view reason, std::string_view message);

// What the names of one job's pods begin with.
std::string FamilyOf(std::string_view name);

// What the scheduler says of nodes ("2 node(s) had untolerated taint {...}, 3 Insufficient cpu")
// without those of the control plane, which are meant for no job, where it speaks of others, too.
std::string WithoutControlPlane(std::string_view event);

// The line that a record of a container runtime's or a collector's holds, after its time and pod:
// {"log":"step 1\n","stream":"stderr","time":"2026-01-01T12:08:32.5Z"} or
// {"message":"step 1","kubernetes":{"pod_name":"train-0"}}. Empty if it is none.
std::string WrittenIn(std::string_view text);

// Whether the image of an event that it is there may be that of one that it couldn't be pulled: a
// pod's containers have several.
bool MayBeSameImage(std::string_view there, std::string_view missed);

}  // namespace muster::worker
