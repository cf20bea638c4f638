package git

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"orch/internal/git/gitcmd"
)

// Identity is a name and an address as commits carry them.
type Identity struct {
	Name, Email string
}

// Committer signs the commits that orch makes itself. It is never the identity of whoever runs it.
func Committer() Identity { return Identity{Name: "orch", Email: "orch@localhost"} }

// Commit is what orch tells about a commit.
type Commit struct {
	SHA, Tree  string
	Parents    []string
	Author     Identity
	AuthorDate time.Time
	Subject    string
	Message    string // the subject too
}

// rawCommit is a commit object, taken apart far enough to make another one of it without changing a byte of what is kept.
type rawCommit struct {
	id, tree string
	parents  []string
	author   string // name, address and date as they stand
	encoding string
	message  string
}

func parseCommit(id string, object []byte) (rawCommit, error) {
	c := rawCommit{id: id}
	header, message, _ := strings.Cut(string(object), "\n\n")
	c.message = message
	for line := range strings.SplitSeq(header, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			c.tree = value
		case "parent":
			c.parents = append(c.parents, value)
		case "author":
			c.author = value
		case "encoding":
			c.encoding = value
		}
	}
	if c.tree == "" || c.author == "" {
		return c, fmt.Errorf("commit %.12s is malformed", id)
	}
	return c, nil
}

// authorDate is the author's date as it stands: seconds and zone.
func (c rawCommit) authorDate() string {
	return strings.TrimSpace(c.author[strings.LastIndexByte(c.author, '>')+1:])
}

func (c rawCommit) subject() string {
	subject, _, _ := strings.Cut(strings.TrimLeft(c.message, "\n"), "\n")
	return subject
}

func (c rawCommit) commit() Commit {
	name, rest, _ := strings.Cut(c.author, " <")
	email, _, _ := strings.Cut(rest, ">")
	seconds, _, _ := strings.Cut(c.authorDate(), " ")
	unix, _ := strconv.ParseInt(seconds, 10, 64)
	return Commit{
		SHA: c.id, Tree: c.tree, Parents: c.parents, Subject: c.subject(), Message: c.message,
		Author: Identity{Name: name, Email: email}, AuthorDate: time.Unix(unix, 0).UTC(),
	}
}

// object is the commit with another tree, committer and parents. The committer's date is an author's, so that the
// same inputs give the same id whenever it is made.
func (c rawCommit) object(tree string, committer Identity, date string, parents ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, parent := range parents {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s <%s> %s\n", c.author, tame(committer.Name), tame(committer.Email), date)
	if c.encoding != "" {
		fmt.Fprintf(&b, "encoding %s\n", c.encoding)
	}
	b.WriteString("\n" + c.message)
	return b.Bytes()
}

// tame removes what would end a field of a commit's header.
func tame(s string) string {
	return strings.Trim(strings.NewReplacer("<", "", ">", "", "\n", " ").Replace(s), " ")
}

// Commit reads the commit with a full id.
func (m *Mirror) Commit(ctx context.Context, id string) (Commit, error) {
	commits, err := m.readCommits(ctx, []byte(id+"\n"))
	if err != nil {
		return Commit{}, err
	}
	return commits[0].commit(), nil
}

// revList reads the commits that are in head's history but not in base's, parents before children.
func (m *Mirror) revList(ctx context.Context, base, head string) ([]rawCommit, error) {
	ids, err := m.read(ctx, "rev-list", "--reverse", "--topo-order", "--end-of-options", "^"+base, head)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return m.readCommits(ctx, ids)
}

// readCommits reads the commits whose ids stand one in a line.
func (m *Mirror) readCommits(ctx context.Context, ids []byte) ([]rawCommit, error) {
	out, err := m.git.Do(ctx, gitcmd.Call{GitDir: m.dir, Stdin: ids, Args: []string{"cat-file", "--batch"}})
	if err != nil {
		return nil, err
	}
	var commits []rawCommit
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		fields := strings.Fields(string(line))
		if len(fields) != 3 || fields[1] != "commit" {
			return nil, fmt.Errorf("read commits: %s", line)
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil || size >= len(rest) {
			return nil, fmt.Errorf("read commits: %s: cut short", line)
		}
		c, err := parseCommit(fields[0], rest[:size])
		if err != nil {
			return nil, err
		}
		commits = append(commits, c)
		out = rest[size+1:]
	}
	return commits, nil
}

// writeCommit stores a commit object.
func (m *Mirror) writeCommit(ctx context.Context, object []byte) (string, error) {
	out, err := m.git.Do(ctx, gitcmd.Call{GitDir: m.dir, Stdin: object, Args: []string{"hash-object", "-t", "commit", "-w", "--stdin"}})
	if err != nil {
		return "", fmt.Errorf("write commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
