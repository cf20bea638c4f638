package task

import "fmt"

// Words says in few words how a task stands. rounds is the cap of its pipeline (Pipeline.Rounds); zero leaves "of N"
// out.
func Words(t Task, rounds int) string {
	switch t.State {
	case Active:
		if try := tryWords(t.Round, rounds); try != "" {
			return "running, " + try
		}
		return "running"
	case Waiting:
		return "waiting for " + waitingWords(t.WaitingFor)
	case Blocked:
		return "needs you"
	case Done:
		if t.LandedCommit != "" {
			return "landed"
		}
		return "done"
	case Cancelled:
		return "cancelled"
	default:
		return string(t.State)
	}
}

// tryWords counts rounds from the second on. A person may have granted more rounds than the cap.
func tryWords(round, rounds int) string {
	switch {
	case round <= 1:
		return ""
	case round <= rounds:
		return fmt.Sprintf("try %d of %d", round, rounds)
	default:
		return fmt.Sprintf("try %d", round)
	}
}

func waitingWords(code string) string {
	switch code {
	case "":
		return "something outside"
	case PersonLands:
		return "a person to land it"
	default:
		return code
	}
}

// Words is Words with the cap of the task's pipeline as it is now. A pipeline that can't be found costs only the cap.
func (p Pipeline) Words(t Task) string { return Words(t, p.Rounds()) }
