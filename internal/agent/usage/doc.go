// Package usage knows what agents have used, and says when it has become too much.
//
// What a run has used is in its row of runs, and changes while it lives. agent_days sums the runs of a day (UTC) and
// outlives them: the statement that notes the end of a run, which changes its row only once, adds to it. So each run is
// counted once, whoever notes its end and however often.
//
// Nothing is ended because of a budget. Budgets are looked at before a run is started: what is under way may end above
// them, by no more than the runs that live at that moment use.
package usage
