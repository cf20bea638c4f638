package app

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// sweepAll has a sweep do everything: each kind of landing at each of its points, and between all runs of git.
const sweepAll = "all"

// orch is killed at each point of a landing that the code declares, and started again: everything lands once, and nothing is
// left behind. A point that none of these landings passes fails the test.
func TestKilledAtEachPointOfALandingLandsOnce(t *testing.T) {
	t.Parallel()
	declared := declaredPoints(t)
	group, halves := "merge:grouped|merge:refresh_noted", "merge:halved"
	if variables["ORCH_SWEEP"] == sweepAll {
		group, halves = landingPoints, landingPoints
	}
	kinds := []struct {
		kind

		points string
		share  int // how many courses have it between them
	}{
		{kind{name: "a landing on a checked out branch", land: "auto", batch: 1}, landingPoints, 3},
		{kind{name: "a branch for a person to land", land: "manual", batch: 1}, "merge:publish", 1},
		{kind{name: "three that land together", land: "auto", batch: 3}, group, 1},
		{kind{name: "two that are red together", land: "auto", batch: 2, red: true}, halves, 1},
	}
	if variables["ORCH_SWEEP"] == sweepAll {
		kinds[1].points = landingPoints
		kinds = append(kinds, kinds[0])
		kinds[4].name, kinds[4].bare = "a landing in a bare repository", true
	}
	var mu sync.Mutex
	var all []string
	t.Cleanup(func() { // when all have ended
		for _, point := range declared {
			if !slices.Contains(all, point) {
				t.Errorf("no landing passed %s", point)
			}
		}
		for _, point := range all {
			if !slices.Contains(declared, point) {
				t.Errorf("%s was passed, but isn't declared", point)
			}
		}
	})
	for _, k := range kinds {
		for n := range k.share {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				died := newCourse(t, k.kind).sweep("", k.points, 1+n, k.share, 300)
				t.Logf("killed at %d points: %s", len(died), strings.Join(died, " "))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, died...)
			})
		}
	}
}

// The same before and after each run of git, of which there are many more.
func TestKilledAtEachRunOfGitOfALandingLandsOnce(t *testing.T) {
	t.Parallel()
	if variables["ORCH_SWEEP"] != sweepAll {
		t.Log("only with ORCH_SWEEP=all")
		return
	}
	for _, k := range []kind{
		{name: "a landing on a checked out branch", land: "auto", batch: 1},
		{name: "a landing in a bare repository", bare: true, land: "auto", batch: 1},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			died := newCourse(t, k).sweep("settled", "git:", 1, 1, 500)
			t.Logf("killed at %d runs of git: %s", len(died), strings.Join(died, " "))
			if len(died) < 20 {
				t.Error("these are not all")
			}
		})
	}
}
