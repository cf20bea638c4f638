package prompt

import (
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"

	"orch/internal/task/flow"
)

const longest = 1 << 20

// Check says what is wrong with the template of a prompt, before a run could fail because of it. name is what the
// answer calls the template, beside the line. An empty one is the built-in one.
func Check(name, text string) error {
	if text == "" {
		text = defaultPrompt
	}
	parsed, err := compile(name, text)
	if err != nil {
		return err
	}
	if err := checkFields(parsed); err != nil {
		return err
	}
	first := Data{
		Key: "demo-1", Repo: "demo", Title: "title", Body: "body", Branch: "orch/demo-1", BaseBranch: "main",
		Stage: flow.Development, Round: 1, Rounds: flow.Pipeline{}.Rounds(),
	}
	second := first
	second.Round, second.Feedback = 2, "feedback"
	for _, sample := range []Data{first, second} {
		if err := parsed.Execute(&limitedBuilder{}, sample); err != nil {
			return err
		}
	}
	return nil
}

// limitedBuilder refuses a text that no agent could read, before a template that repeats itself fills the memory.
type limitedBuilder struct{ strings.Builder }

var errTooLong = fmt.Errorf("it grows beyond %d bytes", longest)

// Write implements io.Writer.
func (b *limitedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > longest {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}

// checkFields finds fields that Data lacks, in branches too that a trial run doesn't enter.
func checkFields(tmpl *template.Template) error {
	for _, t := range tmpl.Templates() {
		if t.Tree == nil || t.Root == nil {
			continue
		}
		// Another template of the file may be called with anything as its dot.
		c := fieldChecker{tree: t.Tree, rooted: t.Name() == tmpl.Name()}
		c.walk(t.Root, c.rooted)
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

type fieldChecker struct {
	tree   *parse.Tree
	rooted bool // $ is a Data
	err    error
}

// walk visits every node. dot says whether the dot is a Data there.
func (c *fieldChecker) walk(node parse.Node, dot bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, each := range n.Nodes {
				c.walk(each, dot)
			}
		}
	case *parse.ActionNode:
		c.pipe(n.Pipe, dot)
	case *parse.TemplateNode:
		c.pipe(n.Pipe, dot)
	case *parse.IfNode:
		c.branch(&n.BranchNode, dot, dot)
	case *parse.WithNode:
		c.branch(&n.BranchNode, dot, false)
	case *parse.RangeNode:
		c.branch(&n.BranchNode, dot, false)
	}
}

func (c *fieldChecker) branch(n *parse.BranchNode, dot, inner bool) {
	c.pipe(n.Pipe, dot)
	c.walk(n.List, inner)
	c.walk(n.ElseList, dot)
}

func (c *fieldChecker) pipe(pipe *parse.PipeNode, dot bool) {
	if pipe == nil {
		return
	}
	for _, command := range pipe.Cmds {
		for _, arg := range command.Args {
			switch n := arg.(type) {
			case *parse.FieldNode:
				if dot {
					c.field(n, n.Ident)
				}
			case *parse.VariableNode:
				if c.rooted && n.Ident[0] == "$" {
					c.field(n, n.Ident[1:])
				}
			case *parse.PipeNode:
				c.pipe(n, dot)
			case *parse.ChainNode:
				if inner, ok := n.Node.(*parse.PipeNode); ok {
					c.pipe(inner, dot)
				}
			}
		}
	}
}

func (c *fieldChecker) field(node parse.Node, names []string) {
	current := reflect.TypeFor[Data]()
	for _, name := range names {
		var ok bool
		var next reflect.StructField
		if current.Kind() == reflect.Struct {
			next, ok = current.FieldByName(name)
		}
		if !ok {
			if c.err == nil {
				location, _ := c.tree.ErrorContext(node)
				c.err = fmt.Errorf("%s: there is no .%s; known: %s", location, strings.Join(names, "."), strings.Join(fields(), " "))
			}
			return
		}
		current = next.Type
	}
}

func fields() []string {
	var names []string
	for field := range reflect.TypeFor[Data]().Fields() {
		names = append(names, "."+field.Name)
	}
	return names
}
