package conformance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Answer is what came back: code, type (of the content), warning, retry-after
// and body; of a watch, body is the list of its events.
type Answer map[string]any

// names gives what differs from server to server and run to run a name that
// doesn't: the object's that a uid or a version is of.
type names struct {
	uids, versions map[string]string
	seen           map[string]int // versions, by uid
	managed        bool           // whether managedFields of this answer are compared
}

func newNames() *names {
	return &names{map[string]string{}, map[string]string{}, map[string]int{}, false}
}

// learn looks for objects in an answer.
func (n *names) learn(value any) {
	switch v := value.(type) {
	case map[string]any:
		if metadata, ok := v["metadata"].(map[string]any); ok {
			n.learnObject(metadata)
		}
		for _, key := range sortedKeys(v) {
			n.learn(v[key])
		}
	case []any:
		for _, element := range v {
			n.learn(element)
		}
	}
}

func (n *names) learnObject(metadata map[string]any) {
	name, _ := metadata["name"].(string)
	uid, _ := metadata["uid"].(string)
	version, _ := metadata["resourceVersion"].(string)
	if name == "" || uid == "" {
		return
	}
	name = generated.ReplaceAllString(name, "generated")
	n.uids[uid] = "<uid of " + name + ">"
	if version != "" && n.versions[version] == "" {
		n.seen[uid]++
		n.versions[version] = fmt.Sprintf("<version %d of %s>", n.seen[uid], name)
	}
}

func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

var (
	// What follows is a difference of Go values, worded by chance.
	fixedFields = regexp.MustCompile(`(?s)(pod updates may not change fields other than [^\n]*\n).*`)
	uuid        = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// What steps call generateName ends with a hyphen and five of these.
	generated = regexp.MustCompile(`\bgenerated-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
	current   = regexp.MustCompile(`(current: |too old resource version: )\d+( \(\d+\))?`)
	// Preconditions, in the words of etcd's store and in those of a deletion.
	version = regexp.MustCompile(`(ResourceVersion in (?:precondition: |object meta: |the precondition \(|record \())\d+`)
)

func (n *names) normalize(answer Answer, managed bool) Answer {
	n.learn(answer["body"])
	n.managed = managed
	return n.of("", map[string]any(answer)).(map[string]any)
}

func (n *names) of(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		_, isList := v["items"]
		isBookmark := v["type"] == "BOOKMARK"
		result := map[string]any{}
		for k := range v {
			switch {
			case k == "managedFields" && !n.managed:
				// The embedded server keeps them from an object's first apply on.
			case k == "managedFields":
				result[k] = byManager(n.of(k, v[k]))
			case k == "metadata" && isList, k == "object" && isBookmark:
				// Of a moment, not of an object: what else was written on the server
				// counts.
				result[k] = forget(n.of(k, v[k]), v[k])
			default:
				result[k] = n.of(k, v[k])
			}
		}
		return result
	case []any:
		result := make([]any, len(v))
		for i, element := range v {
			result[i] = n.of(key, element)
		}
		return result
	case string:
		return n.text(key, v)
	}
	return value
}

// byManager takes the times, which are of a second, out of the order of managedFields.
func byManager(fields any) any {
	list, ok := fields.([]any)
	if !ok {
		return fields
	}
	of := func(entry any) string {
		e, _ := entry.(map[string]any)
		return fmt.Sprint(e["operation"], " ", e["manager"], " ", e["subresource"])
	}
	sort.Slice(list, func(i, j int) bool { return of(list[i]) < of(list[j]) })
	return list
}

// forget replaces the version of a list or bookmark by the same word for all.
func forget(normalized, original any) any {
	object, ok := normalized.(map[string]any)
	if !ok {
		return normalized
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		object["metadata"] = forget(metadata, nil)
	}
	if _, ok := object["resourceVersion"]; ok {
		object["resourceVersion"] = "<version>"
	}
	return object
}

func (n *names) text(key, text string) string {
	switch {
	case key == "resourceVersion" && text != "" && text != "0":
		if _, err := strconv.ParseUint(text, 10, 64); err == nil {
			if known := n.versions[text]; known != "" {
				return known
			}
			return "<version>"
		}
	case key == "continue" && text != "":
		return "<continue>"
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return "<time>"
	}
	text = uuid.ReplaceAllStringFunc(text, func(uid string) string {
		if known := n.uids[uid]; known != "" {
			return known
		}
		return uid
	})
	text = generated.ReplaceAllString(text, "generated-<suffix>")
	text = fixedFields.ReplaceAllString(text, "$1<difference>")
	text = version.ReplaceAllString(text, "$1<version>")
	return current.ReplaceAllString(text, "$1<version>")
}

// Compare returns what is wrong: differences that the step doesn't list, and
// listed ones that aren't there or aren't as listed. Empty if nothing is.
func Compare(step *Step, real, embedded Answer) string {
	var wrong strings.Builder
	one, other := copyOf(real), copyOf(embedded)
	for _, known := range step.Differs {
		path := strings.Split(known.At, ".")
		inReal, inEmbedded := lookUp(one, path), lookUp(other, path)
		if reflect.DeepEqual(inReal, inEmbedded) {
			fmt.Fprintf(&wrong, "at %s there is no difference any more:\n%s", known.At, inYAML(inReal))
		} else if !reflect.DeepEqual(inReal, known.Real) || !reflect.DeepEqual(inEmbedded, known.Embedded) {
			fmt.Fprintf(&wrong, "not as listed:\n%s", difference(known.At, inReal, inEmbedded))
		}
		remove(one, path)
		remove(other, path)
	}
	if !reflect.DeepEqual(lookUp(one, []string{"code"}), lookUp(other, []string{"code"})) {
		// Two answers of different kinds: their fields say nothing about each other.
		for _, at := range []string{"code", "body"} {
			path := []string{at}
			if !reflect.DeepEqual(lookUp(one, path), lookUp(other, path)) {
				wrong.WriteString(difference(at, lookUp(one, path), lookUp(other, path)))
			}
			remove(one, path)
			remove(other, path)
		}
	}
	for _, found := range differences(nil, one, other) {
		wrong.WriteString(found)
	}
	return wrong.String()
}

func differences(path []string, real, embedded any) []string {
	if reflect.DeepEqual(real, embedded) {
		return nil
	}
	var found []string
	one, isMap := real.(map[string]any)
	other, isAlsoMap := embedded.(map[string]any)
	if isMap && isAlsoMap {
		keys := map[string]bool{}
		for key := range one {
			keys[key] = true
		}
		for key := range other {
			keys[key] = true
		}
		var sorted []string
		for key := range keys {
			sorted = append(sorted, key)
		}
		sort.Strings(sorted)
		for _, key := range sorted {
			found = append(found, differences(append(path[:len(path):len(path)], key), one[key], other[key])...)
		}
		return found
	}
	list, isList := real.([]any)
	otherList, isAlsoList := embedded.([]any)
	if isList && isAlsoList && len(list) == len(otherList) {
		for i := range list {
			found = append(found, differences(append(path[:len(path):len(path)], strconv.Itoa(i)), list[i], otherList[i])...)
		}
		return found
	}
	return []string{difference(strings.Join(path, "."), real, embedded)}
}

// difference is as a script would list it.
func difference(at string, real, embedded any) string {
	return "  - " + strings.ReplaceAll(strings.TrimSpace(inYAML(map[string]any{
		"at": at, "real": real, "embedded": embedded})), "\n", "\n    ") + "\n"
}

func inYAML(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func copyOf(answer Answer) any {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	var copied any
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// lookUp is nil where there is nothing. A name with dots in it can't be told: such
// a difference is listed one level up.
func lookUp(value any, path []string) any {
	for _, name := range path {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

func remove(value any, path []string) {
	parent := lookUp(value, path[:len(path)-1])
	last := path[len(path)-1]
	switch v := parent.(type) {
	case map[string]any:
		delete(v, last)
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i >= 0 && i < len(v) {
			v[i] = nil
		}
	}
}
