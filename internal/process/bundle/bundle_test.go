package bundle_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/process/bundle"
	"orch/internal/process/redact"
)

// anyBytes are what an environment may hold, text or not.
func anyBytes(rt *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, label))
}

func TestWhatIsSentArrives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var b bundle.Bundle
		for range rapid.IntRange(0, 4).Draw(rt, "entries") {
			b.Env = append(b.Env, anyBytes(rt, "entry"))
		}
		for range rapid.IntRange(0, 4).Draw(rt, "secrets") {
			b.Secrets = append(b.Secrets, redact.Secret{Name: anyBytes(rt, "name"), Value: anyBytes(rt, "value")})
		}
		var pipe bytes.Buffer
		if err := b.Send(&pipe); err != nil {
			rt.Fatal(err)
		}
		whole := bytes.Clone(pipe.Bytes())
		if got, err := bundle.Receive(&pipe); err != nil || !reflect.DeepEqual(got, b) {
			rt.Fatalf("%+v became %+v, %v", b, got, err)
		}
		cut := rapid.IntRange(0, len(whole)-1).Draw(rt, "cut")
		if _, err := bundle.Receive(bytes.NewReader(whole[:cut])); !errors.Is(err, bundle.ErrNotWhole) {
			rt.Fatalf("%d bytes of %d: %v", cut, len(whole), err)
		}
		whole[rapid.IntRange(0, len(whole)-1).Draw(rt, "byte")] ^= 1
		if _, err := bundle.Receive(bytes.NewReader(whole)); !errors.Is(err, bundle.ErrNotWhole) {
			rt.Fatalf("with a wrong bit: %v", err)
		}
	})
}

func FuzzReceive(f *testing.F) {
	var pipe bytes.Buffer
	if err := (bundle.Bundle{Env: []string{"A=b"}}).Send(&pipe); err != nil {
		f.Fatal(err)
	}
	f.Add(pipe.Bytes())
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := bundle.Receive(bytes.NewReader(raw)); err != nil && !errors.Is(err, bundle.ErrNotWhole) {
			t.Fatal(err)
		}
	})
}
