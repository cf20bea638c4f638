package orchyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// fileYAML and the types below are orch.yaml as it is written.
type fileYAML struct {
	Repos     []repoYAML             `yaml:"repos"`
	Budgets   budgetsYAML            `yaml:"budgets"`
	Alerts    alertsYAML             `yaml:"alerts"`
	Agents    map[string]agentYAML   `yaml:"agents"`
	Pipelines map[string][]stageYAML `yaml:"pipelines"`
}

type repoYAML struct {
	Name     string `yaml:"name"`
	Forge    string `yaml:"forge"`
	Path     string `yaml:"path"`
	Base     string `yaml:"base"`
	Pipeline string `yaml:"pipeline"`
	Setup    string `yaml:"setup"`
	Test     string `yaml:"test"`
	Land     string `yaml:"land"`
	Batch    any    `yaml:"batch"`
}

type alertsYAML struct {
	QuietReclaims bool `yaml:"quiet_reclaims"` //nolint:tagliatelle // orch.yaml is snake_case
}

type budgetsYAML struct {
	Run  *budgetYAML `yaml:"run"`
	Task *budgetYAML `yaml:"task"`
	Day  *budgetYAML `yaml:"day"`
}

// budgetYAML holds numbers, or none.
type budgetYAML struct {
	MaxCostUSD any `yaml:"max_cost_usd"` //nolint:tagliatelle // orch.yaml is snake_case
	MaxTokens  any `yaml:"max_tokens"`   //nolint:tagliatelle // orch.yaml is snake_case
	MaxRuns    any `yaml:"max_runs"`     //nolint:tagliatelle // orch.yaml is snake_case
}

type agentYAML struct {
	Preset           string            `yaml:"preset"`
	Command          any               `yaml:"command"` // a string or a list of strings
	Model            string            `yaml:"model"`
	Args             []any             `yaml:"args"`
	MaxTurns         any               `yaml:"max_turns"`        //nolint:tagliatelle // orch.yaml is snake_case
	MaxCostUSD       any               `yaml:"max_cost_usd"`     //nolint:tagliatelle // orch.yaml is snake_case
	MaxTokens        any               `yaml:"max_tokens"`       //nolint:tagliatelle // orch.yaml is snake_case
	MaxCostUSDDay    any               `yaml:"max_cost_usd_day"` //nolint:tagliatelle // orch.yaml is snake_case
	Timeout          string            `yaml:"timeout"`
	StallTimeout     string            `yaml:"stall_timeout"`      //nolint:tagliatelle // orch.yaml is snake_case
	ToolStallTimeout string            `yaml:"tool_stall_timeout"` //nolint:tagliatelle // orch.yaml is snake_case
	Fallback         string            `yaml:"fallback"`
	Env              []string          `yaml:"env"`
	Set              map[string]string `yaml:"set"`
	Plain            []string          `yaml:"plain"`
	Home             []seedYAML        `yaml:"home"`
}

type seedYAML struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
}

type stageYAML struct {
	Stage  string `yaml:"stage"`
	Agent  string `yaml:"agent"`
	Prompt string `yaml:"prompt"`
	Gates  []any  `yaml:"gates"`   // a name or {command: …, timeout: …}
	OnFail string `yaml:"on_fail"` //nolint:tagliatelle // orch.yaml is snake_case
	Method string `yaml:"method"`
}

// document is a decoded file that still knows where everything stood.
type document struct {
	path string
	root ast.Node // nil for an empty file
	data fileYAML
}

func decodeFile(path string, content []byte) (doc *document, err error) {
	defer func() {
		// The parser is foreign code that reads what people type.
		if value := recover(); value != nil {
			doc, err = nil, &ProblemError{File: path, Line: 1, Message: "the YAML parser gave up on this file: check its syntax"}
		}
	}()
	file, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, yamlProblem(path, err)
	}
	doc = &document{path: path}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.NullType && d.Body.Type() != ast.CommentType {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return doc, nil
	case 1:
		doc.root = bodies[0]
	default:
		return nil, &ProblemError{File: path, Line: lineOf(bodies[1]), Message: "a second document begins here; orch.yaml is one"}
	}
	decoder := yaml.NewDecoder(strings.NewReader(""), yaml.Strict())
	if err := decoder.DecodeFromNode(doc.root, &doc.data); err != nil {
		return nil, yamlProblem(path, err)
	}
	return doc, nil
}

// yamlProblem keeps the parser's message and line and drops the piece of source it quotes: a set: may hold a secret.
func yamlProblem(path string, err error) error {
	problem := &ProblemError{File: path, Line: 1, Message: "it isn't valid YAML"}
	if located, ok := errors.AsType[yaml.Error](err); ok {
		problem.Message = located.GetMessage()
		if token := located.GetToken(); token != nil && token.Position != nil {
			problem.Line = token.Position.Line
		}
	}
	if _, ok := errors.AsType[*yaml.UnknownFieldError](err); ok {
		problem.Message += " (known here: repos, budgets, alerts, agents, pipelines at the top; docs/configuration.md lists the keys of each)"
	}
	return problem
}

// line answers where the value at path stands; of a path that isn't all there, where its last existing part does.
func (d *document) line(path ...any) int {
	node, line := d.root, 1
	for _, step := range path {
		next, keyLine := child(node, step)
		if next == nil {
			break
		}
		node, line = next, keyLine
	}
	return line
}

// child finds a key of a mapping or an index of a sequence, and the line it begins on.
func child(node ast.Node, step any) (ast.Node, int) {
	switch n := unwrap(node).(type) {
	case *ast.MappingNode:
		for _, value := range n.Values {
			if key, ok := step.(string); ok && keyOf(value) == key {
				return value.Value, lineOf(value.Key)
			}
		}
	case *ast.SequenceNode:
		if i, ok := step.(int); ok && i < len(n.Values) {
			return n.Values[i], lineOf(firstOf(n.Values[i]))
		}
	}
	return nil, 0
}

func keyOf(value *ast.MappingValueNode) string {
	if key, ok := value.Key.(ast.ScalarNode); ok {
		return fmt.Sprint(key.GetValue())
	}
	return ""
}

// unwrap goes through anchors to what they name. An alias stays: its own line is the one to talk about.
func unwrap(node ast.Node) ast.Node {
	for {
		anchor, ok := node.(*ast.AnchorNode)
		if !ok {
			return node
		}
		node = anchor.Value
	}
}

// firstOf is the first key of a mapping, whose own token is a colon.
func firstOf(node ast.Node) ast.Node {
	if mapping, ok := unwrap(node).(*ast.MappingNode); ok && len(mapping.Values) > 0 && mapping.Values[0].Key != nil {
		return mapping.Values[0].Key
	}
	return node
}

func lineOf(node ast.Node) int {
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 1
	}
	return node.GetToken().Position.Line
}
