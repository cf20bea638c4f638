package orchyaml

import (
	"reflect"
	"strings"
)

// Keys lists the keys of the lists and maps in orch.yaml.
func Keys() []string {
	var keys []string
	for _, t := range []reflect.Type{reflect.TypeFor[repoYAML](), reflect.TypeFor[agentYAML](), reflect.TypeFor[stageYAML](), reflect.TypeFor[budgetYAML](), reflect.TypeFor[seedYAML]()} {
		for field := range t.Fields() {
			keys = append(keys, strings.Split(field.Tag.Get("yaml"), ",")[0])
		}
	}
	return keys
}

// ParseFile is what LoadFile does after reading.
func ParseFile(path string, content []byte, check PromptCheck) (*File, error) {
	return parseFile(path, content, check)
}
