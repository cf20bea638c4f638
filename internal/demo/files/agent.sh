#!/bin/sh
# A scripted agent: it stands in for claude or codex, so that the demo needs no model and no key. Like a real one it reads
# its prompt, edits files, commits, and mends what the gate complained of when the prompt tells it.
set -eu
prompt=$(cat)
say() { echo "agent: $*"; }

say "reading the task"
if printf '%s' "$prompt" | grep -q "FAIL  farewell"; then
	say "the test says what is wrong: the greeting lacks its exclamation mark"
	sed -i.bak 's/Goodbye, \$1"/Goodbye, $1!"/' farewell.sh && rm -f farewell.sh.bak
	git add farewell.sh
	git commit -qm "Say goodbye as the test wants it"
else
	say "writing farewell.sh"
	cat > farewell.sh <<'SCRIPT'
#!/bin/sh
# farewell NAME: says goodbye
echo "Goodbye, $1"
SCRIPT
	git add farewell.sh
	git commit -qm "Add farewell.sh"
fi
say "committed $(git log -1 --format='%h %s')"
