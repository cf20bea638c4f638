#!/bin/sh
# The demo's tests: `sh test.sh` exits 0 when greet.sh does what it should.
failed=0
check() { # check WANT ARG
	got=$(sh ./greet.sh "$2")
	if [ "$got" = "$1" ]; then
		echo "ok    greet '$2'"
	else
		echo "FAIL  greet '$2': got '$got', want '$1'"
		failed=1
	fi
}
check "Hello, Ada!" "Ada"
if [ -f farewell.sh ]; then
	got=$(sh ./farewell.sh Ada)
	if [ "$got" = "Goodbye, Ada!" ]; then
		echo "ok    farewell 'Ada'"
	else
		echo "FAIL  farewell 'Ada': got '$got', want 'Goodbye, Ada!'"
		failed=1
	fi
fi
exit $failed
