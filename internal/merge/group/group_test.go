package group_test

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/merge/group"
)

func TestNextTakesNoMoreThanEachAllows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		line  []group.Member
		batch int
		want  []int
	}{
		"alone by default":              {[]group.Member{{}, {}}, 1, []int{0}},
		"all of a short line":           {[]group.Member{{}, {}}, 8, []int{0, 1}},
		"as many as a batch":            {[]group.Member{{}, {}, {}}, 2, []int{0, 1}},
		"the first was halved":          {[]group.Member{{Most: 1}, {}}, 8, []int{0}},
		"a later one was halved":        {[]group.Member{{}, {Most: 2}, {}}, 8, []int{0, 1}},
		"one behind may only be alone":  {[]group.Member{{}, {}, {Most: 1}, {}}, 8, []int{0, 1}},
		"one that can't is passed over": {[]group.Member{{}, {Apart: true}, {}}, 8, []int{0, 2}},
		"nobody":                        {nil, 8, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := group.Next(tt.line, tt.batch); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// However the red ones lie, every green one lands, every red one is returned, and it takes no more tests than a bisection of
// each red one.
func TestBisectionLandsAllGreenAndReturnsAllRed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		red := rapid.SliceOfN(rapid.Bool(), 1, 40).Draw(t, "red")
		batch := rapid.IntRange(1, 16).Draw(t, "batch")
		ids := make([]int, len(red))
		line := make([]group.Member, len(red))
		for i := range ids {
			ids[i] = i
		}
		tests, landed, returned := 0, 0, 0
		for len(ids) > 0 {
			picked := group.Next(line, batch)
			if len(picked) == 0 || picked[0] != 0 || len(picked) > batch {
				t.Fatalf("picked %v of %v", picked, line)
			}
			bad := slices.ContainsFunc(picked, func(i int) bool { return red[ids[i]] })
			tests++
			switch {
			case !bad:
				landed += len(picked)
			case len(picked) == 1:
				returned++
			default:
				tests++ // once more
				for _, i := range picked {
					line[i].Most = group.Halve(len(picked))
				}
				continue
			}
			ids, line = slices.Delete(ids, 0, len(picked)), slices.Delete(line, 0, len(picked))
		}
		reds := 0
		for _, r := range red {
			if r {
				reds++
			}
		}
		if returned != reds || landed != len(red)-reds {
			t.Fatalf("landed %d and returned %d of %v", landed, returned, red)
		}
		groups := (len(red) + batch - 1) / batch
		if most := groups + reds*(3*bits.Len(uint(batch))+1); tests > most {
			t.Fatalf("%d tests for %d groups and %d red ones, more than %d", tests, groups, reds, most)
		}
	})
}
