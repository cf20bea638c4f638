package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Prefix is what the names of orch's variables begin with.
const Prefix = "ORCH_"

const fileSuffix = "_FILE"

// Variable describes one ORCH_… variable.
type Variable struct {
	Name    string
	Default string // empty when it is derived or there is none
	Shown   string // what the documentation says in place of a derived default
	Secret  bool   // may come from a file named by Name_FILE
}

// Variables lists every variable in the order of the documentation.
func Variables() []Variable {
	var all []Variable
	for _, f := range new(Config).fields() {
		all = append(all, f.Variable)
	}
	return all
}

// field is a variable and where its value goes.
type field struct {
	Variable
	value reflect.Value
}

// decoder is what every typed value of this package implements.
type decoder interface{ Decode(value string) error }

func (f field) set(value string) error {
	if d, ok := reflect.TypeAssert[decoder](f.value.Addr()); ok {
		if err := d.Decode(value); err != nil {
			return &ValueError{Variable: f.Name, Value: value, Allowed: allowedOf(err)}
		}
		return nil
	}
	f.value.SetString(value)
	return nil
}

func (c *Config) fields() []field {
	var all []field
	for _, section := range c.sections() {
		value := reflect.ValueOf(section).Elem()
		for i := range value.NumField() {
			tag := value.Type().Field(i).Tag
			name := tag.Get("envconfig")
			if name == "" {
				continue
			}
			_, secret := reflect.TypeAssert[Secret](value.Field(i))
			all = append(all, field{
				Variable: Variable{Name: name, Default: tag.Get("default"), Shown: tag.Get("shown"), Secret: secret},
				value:    value.Field(i),
			})
		}
	}
	return all
}

// unknownVariables warns of variables that look like orch's but aren't, for a switch that does nothing because of a
// typing error is worse than none.
func unknownVariables(environ []string) []string {
	var names []string
	for _, v := range Variables() {
		names = append(names, v.Name)
		if v.Secret {
			names = append(names, v.Name+fileSuffix)
		}
	}
	var warnings []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix) || slices.Contains(names, name) {
			continue
		}
		warning := name + " is set, but orch knows no such variable"
		if near := nearest(name, names); near != "" {
			warning += fmt.Sprintf(" (did you mean %s?)", near)
		}
		warnings = append(warnings, warning)
	}
	slices.Sort(warnings)
	return warnings
}

// nearest answers the candidate that a typing error may have turned into name; "" when none is near.
func nearest(name string, candidates []string) string {
	const (
		tolerated    = 3
		smallestPart = 3 // a third of the letters at most
	)
	best, bestDistance := "", min(tolerated, max(1, len(name)/smallestPart))+1
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// distance is the number of single-letter edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitution := diagonal
			if a[i] != b[j] {
				substitution++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitution, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
