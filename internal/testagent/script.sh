#!/bin/sh
# A fake agent of a test. What it does at each start is in its state directory; what it was started with is left there.
state=@STATE@
format=@FORMAT@

n=0
while ! mkdir "$state/calls/$n" 2>/dev/null; do n=$((n + 1)); done
call=$state/calls/$n
printf '%s\0' "$@" >"$call/argv"
pwd >"$call/dir"
env >"$call/env"

resumed= file= before=
for arg in "$@"; do
	case $before in
	--resume | -r | -s | --session | resume) resumed=$arg ;;
	--message-file) file=$arg ;;
	esac
	before=$arg
done
if [ -n "$file" ]; then cat "$file"; else cat; fi >"$call/prompt"

# The session, and the how manieth run in it this is.
session=$resumed
if [ -n "$resumed" ] && [ ! -d "$state/sessions/$resumed" ]; then
	touch "$call/ready"
	sed "s/@SESSION@/$resumed/g" "$state/lost"
	exit "$(cat "$state/lost.code")"
fi
if [ -z "$session" ]; then
	session=$(cat /proc/sys/kernel/random/uuid)
	if [ "$format" = opencode ]; then session=ses_$(echo "$session" | tr -d -); fi
	mkdir "$state/sessions/$session"
fi
uses=1
while ! mkdir "$state/sessions/$session/$uses" 2>/dev/null; do uses=$((uses + 1)); done
echo "$session" >"$call/session"

# The turn: the first that nobody has had, or that still lasts; the last one repeats.
taken=taken
if [ -e "$state/per-dir" ]; then taken=taken-$(pwd | cksum | cut -d' ' -f1); fi
k=0 until=$(($(date +%s) + 3600))
while :; do
	turn=$state/turns/$k
	if [ -e "$turn/lasts" ]; then
		echo $(($(date +%s) + $(cat "$turn/lasts"))) >"$call/until"
		ln "$call/until" "$turn/until" 2>/dev/null
		until=$(cat "$turn/until")
		if [ "$(date +%s)" -lt "$until" ]; then break; fi
	elif mkdir "$turn/$taken" 2>/dev/null; then
		break
	fi
	if [ ! -d "$state/turns/$((k + 1))" ]; then break; fi
	k=$((k + 1))
done
touch "$call/ready"

# Sums that a program keeps for a session grow with each run in it.
values="s/@SESSION@/$session/g;s/@RESET@/$until/g;s/@LEFT@/$((until - $(date +%s)))/g"
values="$values;s/@CLOCK@/$(date -u -d "@$until" '+%Y-%m-%d %H:%M:%S')/g"
while read -r name unit; do
	sum=$((unit * uses))
	if [ "$name" = COST ]; then sum=$((sum / 1000000)).$(printf %06d $((sum % 1000000))); fi
	values="$values;s/@$name@/$sum/g"
done <"$turn/sums"

sed "$values" "$turn/first"
if [ -e "$turn/hold" ]; then
	hold=$(cat "$turn/hold")
	while [ ! -e "$hold" ]; do sleep 0.05; done
fi
if [ -e "$turn/sleep" ]; then sleep "$(cat "$turn/sleep")"; fi
if [ -e "$turn/work" ]; then . "$turn/work"; fi
sed "$values" "$turn/rest"
exit "$(cat "$turn/code")"
