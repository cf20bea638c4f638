package transcript

import "encoding/json"

// number is a number that may be missing.
type number struct{ value *float64 }

// UnmarshalJSON takes anything else than a number for none.
func (n *number) UnmarshalJSON(raw []byte) error {
	var value *float64
	if json.Unmarshal(raw, &value) == nil {
		n.value = value
	}
	return nil
}

// usd reads an amount of money; nil for what is none.
func (n number) usd() *float64 { return dollars(n.value) }

func dollars(value *float64) *float64 {
	if value == nil || !(*value >= 0 && *value <= maxCost) {
		return nil
	}
	amount := *value
	return &amount
}

// counted reads a count; nil for what is none.
func counted[N int | int64](n number, most N) *N {
	if n.value == nil || !(*n.value >= 0) {
		return nil
	}
	count := N(min(*n.value, float64(most)))
	return &count
}
