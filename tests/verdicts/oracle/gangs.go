package main

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

type waitingGang struct {
	objectLists
	Members []any `json:"members"`
	// One pod at a time, in some order and on nodes picked at random, all of them were placed.
	FitsOneByOne bool `json:"fitsOneByOne"`
}

type placedGang struct {
	Seed int64 `json:"seed"`
	// Member and node, in the order in which they are to be bound.
	Places [][2]string `json:"places"`
}

type replayedGang struct {
	Seed int64 `json:"seed"`
	// Empty if every binding passed: the first that didn't, and which plugin refuses it.
	Refused string `json:"refused"`
}

// How often one pod at a time is tried: kube-scheduler itself would try but once.
const attempts = 8

func newWaitingGang(seed int64) (waitingGang, error) {
	random := newDice(seed)
	made, members := random.clusterWithGang()
	result := waitingGang{objectLists: made.lists(seed)}
	for _, member := range members {
		result.Members = append(result.Members, lean(member))
	}
	scheduler, err := newScheduler(made)
	if err != nil {
		return result, err
	}
	defer scheduler.stop()
	for range attempts {
		result.FitsOneByOne, err = scheduler.placeOneByOne(members, random)
		if err != nil || result.FitsOneByOne {
			return result, err
		}
		random.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	}
	return result, nil
}

// placeOneByOne says whether all found a place, and leaves the cluster as it was.
func (s *scheduler) placeOneByOne(members []*v1.Pod, random dice) (bool, error) {
	var bound []*v1.Pod
	for _, member := range members {
		nodes, _, err := s.feasible(member)
		if err != nil {
			return false, err
		}
		if len(nodes) == 0 {
			break
		}
		pod, err := s.assume(member, random.pick(nodes...))
		if err != nil {
			return false, err
		}
		bound = append(bound, pod)
	}
	return len(bound) == len(members), s.forget(bound)
}

func replay(placed placedGang) (replayedGang, error) {
	result := replayedGang{Seed: placed.Seed}
	made, members := newDice(placed.Seed).clusterWithGang()
	scheduler, err := newScheduler(made)
	if err != nil {
		return result, err
	}
	defer scheduler.stop()
	for _, place := range placed.Places {
		at := slices.IndexFunc(members, func(pod *v1.Pod) bool { return pod.Name == place[0] })
		if at < 0 {
			return result, fmt.Errorf("seed %d: there is no pod %s", placed.Seed, place[0])
		}
		nodes, refusedBy, err := scheduler.feasible(members[at])
		if err != nil {
			return result, err
		}
		if !slices.Contains(nodes, place[1]) {
			result.Refused = fmt.Sprintf("%s on %s: %s", place[0], place[1], refusedBy[place[1]])
			return result, nil
		}
		if _, err := scheduler.assume(members[at], place[1]); err != nil {
			return result, err
		}
	}
	return result, nil
}
