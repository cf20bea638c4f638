package config

import (
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"
)

// checkFields finds fields that PromptData lacks, in branches too that a trial run doesn't enter.
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
	rooted bool // $ is a PromptData
	err    error
}

// walk visits every node. dot says whether the dot is a PromptData there.
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
	current := reflect.TypeFor[PromptData]()
	for _, name := range names {
		var ok bool
		var next reflect.StructField
		if current.Kind() == reflect.Struct {
			next, ok = current.FieldByName(name)
		}
		if !ok {
			if c.err == nil {
				location, _ := c.tree.ErrorContext(node)
				c.err = fmt.Errorf("%s: there is no .%s; known: %s", location, strings.Join(names, "."), strings.Join(promptFields(), " "))
			}
			return
		}
		current = next.Type
	}
}

func promptFields() []string {
	var names []string
	for field := range reflect.TypeFor[PromptData]().Fields() {
		names = append(names, "."+field.Name)
	}
	return names
}
