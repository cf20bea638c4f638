package preset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"orch/internal/agent/outcome"
	"orch/internal/transcript"
)

// SessionWord stands for the session to go on with in a list of arguments of the preset command. An argument that holds
// it is left out of a new session.
const SessionWord = "{{session}}"

// Build makes the command of a run. Its error wraps ErrBadEntry.
func Build(e Entry, s Start) (Command, error) {
	p, known := Of(e.Preset)
	if !known {
		return Command{}, fmt.Errorf("%w: no preset is called %q; known: %s", ErrBadEntry, e.Preset, strings.Join(Names(), ", "))
	}
	if err := p.Check(e); err != nil {
		return Command{}, err
	}
	if s.Session != "" && !plausible(s.Session) {
		return Command{}, fmt.Errorf("%w: %q is no session", ErrBadEntry, s.Session)
	}
	if p.Format == transcript.Command {
		return ownCommand(e, s)
	}
	program := []string{p.Program}
	if len(e.Command.Argv) > 0 {
		program = e.Command.Argv
	}
	var command Command
	switch p.Format {
	case transcript.Claude:
		command = claude(e, s)
	case transcript.Codex:
		command = codex(e, s)
	case transcript.Gemini:
		command = gemini(e, s)
	case transcript.OpenCode:
		command = openCode(e, s)
	default:
		var err error
		if command, err = aider(e, s); err != nil {
			return Command{}, err
		}
	}
	command.Argv = append(slices.Clone(program), command.Argv...)
	if p.Format == transcript.Aider {
		command.Argv = tidied(command.Argv)
	}
	return command, nil
}

// Check looks for what an entry asks of a preset that can't do it. Its error wraps ErrBadEntry.
func (p Preset) Check(e Entry) error {
	switch {
	case e.MaxTurns < 0 || e.MaxCostUSD != nil && *e.MaxCostUSD <= 0:
		return fmt.Errorf("%w: a bound has to be above zero", ErrBadEntry)
	case p.Format == transcript.Command && (e.Model != "" || len(e.Args) > 0):
		return fmt.Errorf("%w: preset %s takes no model and no args: they belong into its command", ErrBadEntry, p.Name)
	case p.Format != transcript.Command && strings.TrimSpace(e.Command.Shell) != "":
		return fmt.Errorf("%w: the command of preset %s names another program to start: write a list, not a line for the shell", ErrBadEntry, p.Name)
	case len(e.Command.Argv) > 0 && e.Command.Argv[0] == "":
		return fmt.Errorf("%w: empty command", ErrBadEntry)
	case e.MaxTurns > 0 && !p.Turns:
		return fmt.Errorf("%w: preset %s takes no max_turns", ErrBadEntry, p.Name)
	default:
		return nil
	}
}

// plausible keeps a word that a program made up from being taken for a flag, or for more than a word.
func plausible(session string) bool {
	const longest = 256
	return len(session) <= longest && session[0] != '-' &&
		strings.IndexFunc(session, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func claude(e Entry, s Start) Command {
	argv := []string{"-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"}
	argv = append(argv, flag("--model", e.Model)...)
	if e.MaxTurns > 0 {
		argv = append(argv, "--max-turns", strconv.Itoa(e.MaxTurns))
	}
	if e.MaxCostUSD != nil {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(*e.MaxCostUSD, 'f', -1, 64))
	}
	argv = append(argv, flag("--resume", s.Session)...)
	return Command{Argv: append(argv, e.Args...), Stdin: s.Prompt, Env: []string{"DISABLE_AUTOUPDATER=1"}}
}

func codex(e Entry, s Start) Command {
	argv := []string{
		"exec", "--json", "--skip-git-repo-check", "--color", "never", "--sandbox", "danger-full-access", "-c", `approval_policy="never"`,
	}
	argv = append(argv, flag("--model", e.Model)...)
	argv = append(argv, e.Args...) // most of its flags aren't known behind resume
	if s.Session != "" {
		argv = append(argv, "resume", s.Session)
	}
	return Command{Argv: append(argv, "-"), Stdin: s.Prompt}
}

func gemini(e Entry, s Start) Command {
	argv := []string{"--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"}
	argv = append(argv, flag("--model", e.Model)...)
	argv = append(argv, flag("--resume", s.Session)...)
	return Command{Argv: append(argv, e.Args...), Stdin: s.Prompt}
}

func openCode(e Entry, s Start) Command {
	// Its errors are in its log only: without it there is silence until the end of time.
	argv := []string{"run", "--format", "json", "--auto", "--print-logs", "--log-level", "ERROR"}
	argv = append(argv, flag("--model", e.Model)...)
	argv = append(argv, flag("--session", s.Session)...)
	return Command{Argv: append(argv, e.Args...), Stdin: s.Prompt, Env: []string{"OPENCODE_DISABLE_AUTOUPDATE=1"}}
}

func aider(e Entry, s Start) (Command, error) {
	if s.PromptFile == "" {
		return Command{}, fmt.Errorf("%w: preset aider reads its prompt from a file, and there is none", ErrBadEntry)
	}
	argv := []string{
		"--message-file", s.PromptFile, "--yes-always", "--no-stream", "--no-pretty", "--no-check-update", "--no-show-release-notes",
		"--analytics-disable", "--no-detect-urls", "--no-suggest-shell-commands", "--no-gitignore",
	}
	argv = append(argv, flag("--model", e.Model)...)
	return Command{
		Argv: append(argv, e.Args...),
		// Its notes would be files of the workspace otherwise.
		Env: []string{
			"AIDER_CHAT_HISTORY_FILE=/dev/null", "AIDER_INPUT_HISTORY_FILE=/dev/null",
		},
	}, nil
}

// tidied removes what aider leaves in the workspace beside its work: a cache that nobody ignores and that would count as
// uncommitted work.
func tidied(argv []string) []string {
	script := missing + `
"$@"; code=$?
rm -rf .aider.tags.cache.v*
exit $code`
	return append([]string{"sh", "-c", script, "sh"}, argv...)
}

// missing ends a script when what it is to start isn't there.
const missing = `command -v "$1" >/dev/null || { echo "` + outcome.NotFoundMark + `: $1: not found" >&2; exit 127; }`

func flag(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{name, value}
}

// ownCommand is the command as it is written.
func ownCommand(e Entry, s Start) (Command, error) {
	line := strings.TrimSpace(e.Command.Shell)
	switch {
	case len(e.Command.Argv) > 0 && line != "":
		return Command{}, fmt.Errorf("%w: a command is a list or a line, not both", ErrBadEntry)
	case line != "":
		return Command{Argv: []string{"sh", "-c", e.Command.Shell}, Stdin: s.Prompt}, nil
	case len(e.Command.Argv) == 0:
		return Command{}, fmt.Errorf("%w: empty command", ErrBadEntry)
	}
	argv := make([]string, 0, len(e.Command.Argv))
	for i, word := range e.Command.Argv {
		if i > 0 && strings.Contains(word, SessionWord) {
			if s.Session == "" {
				continue
			}
			word = strings.ReplaceAll(word, SessionWord, s.Session)
		}
		argv = append(argv, word)
	}
	return Command{Argv: argv, Stdin: s.Prompt}, nil
}

// CanResume reports whether an agent of the entry can go on with sessions at all.
func (e Entry) CanResume() bool {
	p, known := Of(e.Preset)
	if !known || p.Format != transcript.Command {
		return known && p.Resumes
	}
	return slices.ContainsFunc(e.Command.Argv, func(word string) bool { return strings.Contains(word, SessionWord) })
}

// GoesOn reports whether an agent of the entry can go on with this session. Build doesn't refuse one that it can.
func (e Entry) GoesOn(session string) bool {
	return session != "" && plausible(session) && e.CanResume()
}

// AfterSetup makes a command that runs the repository's setup command before the agent, whose standard input that must
// not eat. Package outcome knows how it ends when one of the two can't do its part.
func AfterSetup(setup string, argv []string) []string {
	if strings.TrimSpace(setup) == "" {
		return argv
	}
	script := fmt.Sprintf(`setup=$1; shift
sh -c "$setup" </dev/null || { code=$?; printf '\n%%s\n' "%s with exit code $code" >&2; exit %d; }
printf '\n%%s\n' "%s"
%s
exec "$@"`, outcome.SetupFailedMark, outcome.SetupFailedCode, transcript.SetupDone, missing)
	return append([]string{"sh", "-c", script, "sh", setup}, argv...)
}
