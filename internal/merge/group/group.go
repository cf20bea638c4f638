// Package group says who of a line is tested and landed together, and how a group that is red is taken apart. It does nothing
// itself.
//
// A group lands whole or not at all. One that was red twice is halved: each of its members gets the size of the larger half as
// the largest group that it may be in from then on. Groups are made anew from the line, on the target as it is by then, so what
// is left of a bisection is one number of each member. A green half lands; a red one is halved again; a member that is red in a
// group of one goes back to its author.
package group

// Member is somebody in the line.
type Member struct {
	Most  int  // the largest group that it may be in; 0 = any
	Apart bool // it can't be in a group with who is first
}

// Next picks a group from the line, beginning with who is first: the indexes of its members, which stay in their order. At most
// batch are picked, and no more than each of them allows. Who can't be in a group with the first is passed over; who may be only in a
// smaller group ends it, so that nobody is overtaken for ever.
func Next(line []Member, batch int) []int {
	var picked []int
	most := batch
	for i, m := range line {
		if i > 0 && m.Apart {
			continue
		}
		limit := most
		if m.Most > 0 {
			limit = min(limit, m.Most)
		}
		if i > 0 && len(picked) >= limit {
			break
		}
		most = limit
		picked = append(picked, i)
	}
	return picked
}

// Halve is the largest group that the members of a red group of n may be in.
func Halve(n int) int { return (n + 1) / 2 }
