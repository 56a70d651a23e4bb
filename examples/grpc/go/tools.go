//go:build tools

// The plugins of protoc that generate.sh builds. They are named here so that go.mod holds their versions.
package main

import (
	_ "google.golang.org/grpc/cmd/protoc-gen-go-grpc"
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
)
