package transcript

import (
	"strings"
	"testing"
)

func TestWhatCameBeforeTheAgentIsForgotten(t *testing.T) {
	t.Parallel()
	const before = `{"type":"result","subtype":"success","is_error":false,"result":"x","session_id":"theirs","total_cost_usd":99}` + "\n"
	for _, mark := range []string{SetupDone, SetupFailed + " with exit code 3"} {
		said, err := Read(Claude, strings.NewReader(before+"\n"+mark+"\n"))
		if err != nil || said.SessionID != "" || said.CostUSD != nil || said.End != EndNone || said.Lines != 2 {
			t.Errorf("%s: %+v, %v", mark, said, err)
		}
	}
	said, err := Read(Claude, strings.NewReader(before+SetupDone+"\n"+before))
	if err != nil || said.SessionID != "theirs" || *said.CostUSD != 99 || said.End != EndOK {
		t.Errorf("after it: %+v, %v", said, err)
	}
}
