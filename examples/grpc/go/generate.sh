#!/bin/sh
# Writes the Go stubs of proto/headgate/v1 to headgatev1/, beside this file.
# It needs Go, and a Python with grpcio-tools, which has protoc: sh generate.sh [PYTHON]
set -eu
cd "$(dirname "$0")"
python="${1:-python3}"
bin="$(pwd)/.bin"
proto=../../../proto
module=example.com/headgate/lifecycle
GOBIN="$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN="$bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc
options=""
for name in connector connector_service cluster_service; do
    options="$options --go_opt=Mheadgate/v1/$name.proto=$module/headgatev1"
    options="$options --go-grpc_opt=Mheadgate/v1/$name.proto=$module/headgatev1"
done
# shellcheck disable=SC2086
"$python" -m grpc_tools.protoc -I "$proto" \
    --plugin=protoc-gen-go="$bin/protoc-gen-go" \
    --plugin=protoc-gen-go-grpc="$bin/protoc-gen-go-grpc" \
    --go_out=. --go_opt="module=$module" --go-grpc_out=. --go-grpc_opt="module=$module" $options \
    "$proto"/headgate/v1/*.proto
