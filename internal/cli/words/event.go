package words

import (
	"encoding/json"
	"strings"

	"orch/api"
)

// Facts are the data of an event as far as people are shown them.
type Facts struct {
	Stage    string `json:"stage"`
	From     string `json:"from"`
	To       string `json:"to"`
	Round    int    `json:"round"`
	Agent    string `json:"agent"`
	Gate     string `json:"gate"`
	Command  string `json:"command"`
	ExitCode *int   `json:"exit_code"`
	Output   string `json:"output"`
	Reused   bool   `json:"reused"`
	Code     string `json:"code"`
	Commit   string `json:"commit"`
	Ref      string `json:"ref"`
	Outcome  string `json:"outcome"`
}

// FactsOf reads the data of an event.
func FactsOf(e api.TaskEvent) Facts {
	var f Facts
	_ = json.Unmarshal(e.Data, &f) // an event with other facts shows its reason alone
	return f
}

// Event is the facts of an event in one line.
func Event(f Facts) string {
	var words []string
	if f.Stage != "" {
		words = append(words, f.Stage)
	}
	if f.From != "" && f.To != "" {
		words = append(words, f.From+" → "+f.To)
	}
	for _, word := range []string{f.Gate, f.Outcome, f.Code, ShortSHA(f.Commit), f.Ref} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// SalvageRef is where the newest salvage of a task is.
func SalvageRef(events []api.TaskEvent) string {
	ref := ""
	for _, e := range events {
		if f := FactsOf(e); f.Ref != "" {
			ref = f.Ref
		}
	}
	return ref
}

// ShortSHA is a commit's name as people are shown it.
func ShortSHA(sha string) string {
	if len(sha) > 10 {
		return sha[:10]
	}
	return sha
}
