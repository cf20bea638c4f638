#!/bin/sh
# greet NAME: prints a greeting
echo "Hello, $1!"
