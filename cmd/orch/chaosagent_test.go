package main

import "strings"

// chaosKind is a way of an agent to behave, and how a task that has such an agent must end, whatever else happens.
type chaosKind struct {
	name string
	repo string // each has an agent of its own
	ends string // the state of the task, or the reason for which it is blocked
	once bool   // one task of it is enough
	slow bool   // it takes a minute, and is left to the long form
	act  string // what the agent does, in shell
}

var chaosKinds = []chaosKind{
	{name: "works", repo: "app", ends: "done", act: `
for i in 1 2 3 4 5 6 7 8; do say; sleep 0.2; done
work; say; ends 0`},
	{name: "leaves daemons", repo: "app", ends: "done", act: `
setsid sh -c 'trap "" TERM HUP; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &
(sh -c 'trap "" HUP; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &)
say; work; sleep 0.5; say; ends 0`},
	{name: "ignores the end", repo: "slow", ends: "timeout", act: `
trap '' TERM HUP INT
while :; do say; sleep 0.2; done`},
	{name: "floods", repo: "app", ends: "done", act: `
say; work
head -c "$FLOOD" /dev/zero | tr '\0' x | fold -w 1000
echo; say; ends 0`},
	{name: "hands its output on", repo: "app", ends: "done", act: `
sleep 1000 &
say; work; say; ends 0`},
	{name: "does nothing", repo: "app", ends: "rounds_exhausted", act: `
say; sleep 0.3; ends 0`},
	{name: "fails after its work", repo: "app", ends: "agent_failed", act: `
say; work; sleep 0.3; say; ends 1`},
	{name: "is out of quota", repo: "meter", ends: "done", slow: true, act: `
say
if [ ! -e "$D/refused/$ORCH_TASK" ]; then
	: > "$D/refused/$ORCH_TASK"
	echo "{\"orch\":{\"status\":\"quota\",\"reset_at\":$(($(date +%s) + 3))}}"
	ends 1
fi
work; say; ends 0`},
	{name: "isn't let in", repo: "locked", ends: "auth", once: true, act: `
say
echo '{"orch":{"status":"auth"}}'
ends 1`},
	{name: "crashes", repo: "app", ends: "crashed", act: `
say; work; sleep 0.3; say
kill -SEGV $$`},
	{name: "leaves a mess", repo: "app", ends: "done", act: `
say; work
if [ "$ORCH_ROUND" = 1 ]; then
	mkfifo .gitignore
	: > .git/index.lock
	: > .git/refs/heads/other.lock
	mkdir -p closed && echo x > closed/x && chmod 555 closed
	cp test.sh more.sh
fi
say; ends 0`},
}

// chaosAgent is one program for all of them. What it is about to say or do it notes beside its workspace: each start, the
// number of the last line that it has written, and the code that it ends with.
func chaosAgent(dir, flood string) string {
	var cases strings.Builder
	for _, k := range chaosKinds {
		cases.WriteString("'" + strings.ReplaceAll(k.name, "'", "") + "')" + k.act + "\n;;\n")
	}
	return `D=` + dir + ` FLOOD=` + flood + `
while [ ! -s "$D/kinds/$ORCH_TASK" ]; do sleep 0.05; done
echo "$$" >> "$D/starts/$ORCH_RUN"
n=0
say() { n=$((n + 1)); echo "line $n"; echo "$n" > "$D/said/$ORCH_RUN.new"; mv "$D/said/$ORCH_RUN.new" "$D/said/$ORCH_RUN"; }
work() { [ -e "$ORCH_TASK.txt" ] || { echo "$ORCH_TASK" > "$ORCH_TASK.txt" && git add "$ORCH_TASK.txt" && git commit -qm "Do $ORCH_TASK"; }; }
ends() { echo "$1" > "$D/ends/$ORCH_RUN"; exit "$1"; }
case $(cat "$D/kinds/$ORCH_TASK") in
` + cases.String() + `esac
`
}
