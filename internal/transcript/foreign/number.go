package foreign

import "encoding/json"

// What no count of a run is above, and no cost in US dollars.
const (
	MaxTokens = 1 << 50
	MaxTurns  = 1 << 30
	MaxCost   = 99_999
)

// Number is a number that may be missing.
type Number struct{ value *float64 }

// UnmarshalJSON takes anything else than a number for none.
func (n *Number) UnmarshalJSON(raw []byte) error {
	var value *float64
	if json.Unmarshal(raw, &value) == nil {
		n.value = value
	}
	return nil
}

// USD reads an amount of money; nil for what is none.
func (n Number) USD() *float64 {
	if n.value == nil {
		return nil
	}
	return USD(*n.value)
}

// USD takes an amount of money; nil for what is none.
func USD(amount float64) *float64 {
	if !(amount >= 0 && amount <= MaxCost) {
		return nil
	}
	return &amount
}

// Count reads a count; nil for what is none.
func Count[N int | int64](n Number, most N) *N {
	if n.value == nil || !(*n.value >= 0) {
		return nil
	}
	count := N(min(*n.value, float64(most)))
	return &count
}

// Tokens takes a count of tokens.
func Tokens(n int64) int64 { return min(max(n, 0), MaxTokens) }
