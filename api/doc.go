// Package api is the contract of orch's HTTP interface: openapi.yaml, written by hand, and the models, the server
// interface and the client that are generated from it.
//
// Change openapi.yaml first, then run go generate in this directory. Nothing in api.gen.go is edited by hand.
package api

//go:generate go tool -modfile=../scripts/tools/go.mod oapi-codegen -config oapi-codegen.cfg.yaml openapi.yaml
