package preset

import (
	"errors"
	"time"

	"orch/internal/transcript"
)

// ErrBadEntry means that an agent's entry can't be started as it is.
var ErrBadEntry = errors.New("bad agent entry")

// Preset is what there is to know about an agent program.
type Preset struct {
	Name   string
	Format transcript.Format
	// Program is what is started when the entry names nothing else; empty for the preset command.
	Program string
	// Resumes means that it can go on with a session.
	Resumes bool
	// Priced means that it tells what a run has cost.
	Priced bool
	// Turns and Budget mean that it can be told a highest number of turns, and of dollars.
	Turns, Budget bool
	// Models means that it can be told which model to use.
	Models bool
	// Stall is the limit of a silence, ToolStall that of one while a tool works, for entries that name none; zero: no limit.
	Stall, ToolStall time.Duration
	// Home lists files, relative to HOME, of which one has to be there unless one of the variables Keys is set.
	Home, Keys []string
}

// Entry is what orch.yaml says of an agent.
type Entry struct {
	// Preset is the preset's name.
	Preset string
	// Command is the whole command of the preset command, and the program to start instead of the usual one for others.
	Command Template
	Model   string
	// Args come after the preset's own arguments.
	Args []string
	// MaxTurns and MaxCostUSD bound one run; zero and nil are no bounds.
	MaxTurns   int
	MaxCostUSD *float64
}

// Template is a command as configured: either a list of arguments, or a line for the shell.
type Template struct {
	Argv  []string
	Shell string
}

// Start is what a single run adds.
type Start struct {
	Prompt []byte
	// PromptFile holds the prompt too, for programs that don't read it from their standard input.
	PromptFile string
	// Session is the one to go on with; empty is a new one.
	Session string
}

// Command is what to start. Env goes beneath the variables that the agent's entry sets.
type Command struct {
	Argv, Env []string
	Stdin     []byte
}

const (
	// usualStall is for programs that say something each few seconds unless a tool works, which may well take usualTool.
	usualStall, usualTool = 10 * time.Minute, 30 * time.Minute
	// muteStall is for opencode, which says nothing of a tool before it has ended.
	muteStall = 20 * time.Minute
)

func all() []Preset {
	return []Preset{
		{
			Name: "aider", Format: transcript.Aider, Program: "aider", Models: true, Priced: true, Stall: usualStall,
			Home: []string{".aider.conf.yml", ".env"}, Keys: []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"},
		},
		{
			Name: "claude", Format: transcript.Claude, Program: "claude", Models: true, Resumes: true, Priced: true, Turns: true, Budget: true,
			Stall: usualStall, ToolStall: usualTool,
			Home: []string{".claude/.credentials.json", ".claude.json"}, Keys: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"},
		},
		{
			Name: "codex", Format: transcript.Codex, Program: "codex", Models: true, Resumes: true,
			Stall: usualStall, ToolStall: usualTool,
			Home: []string{".codex/auth.json", ".codex/config.toml"}, Keys: []string{"CODEX_API_KEY", "OPENAI_API_KEY"},
		},
		{Name: "command", Format: transcript.Command, Priced: true},
		{
			Name: "gemini", Format: transcript.Gemini, Program: "gemini", Models: true, Resumes: true,
			Stall: usualStall, ToolStall: usualTool,
			Home: []string{".gemini/oauth_creds.json"}, Keys: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"},
		},
		{
			Name: "opencode", Format: transcript.OpenCode, Program: "opencode", Models: true, Resumes: true, Priced: true, Stall: muteStall,
			Home: []string{".local/share/opencode/auth.json", ".config/opencode/opencode.json"}, Keys: []string{"OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"},
		},
	}
}

// Of finds a preset by its name.
func Of(name string) (Preset, bool) {
	for _, p := range all() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// Names lists the presets in order.
func Names() []string {
	var names []string
	for _, p := range all() {
		names = append(names, p.Name)
	}
	return names
}
