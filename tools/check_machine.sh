#!/bin/sh
# Checks that Python and Java are there, and says which package to install. Used by `make setup`.
python="${PYTHON:-python3}"

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    seen=$("$python" --version 2>&1 || echo "no $python")
    echo "headgate needs Python 3.11 or newer; found: $seen." >&2
    echo "Install it (Debian, Ubuntu: apt-get install python3 python3-venv) or name one: make PYTHON=python3.12" >&2
    exit 1
fi

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
if [ -z "$version" ] || [ "$version" -lt 17 ]; then
    echo "headgate needs Java 17 or newer, for Spark and Kafka; found: ${version:-no java on PATH or in JAVA_HOME}." >&2
    echo "Install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)" >&2
    exit 1
fi
