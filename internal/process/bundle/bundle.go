// Package bundle carries to a shim, through a channel, what is written nowhere: the environment of its program, and the
// values that must not appear in the log.
//
// Sent through a pair of sockets it is in no file, in no command line, and in nothing below /proc/<pid> that an agent of the
// same user could open. It is one frame: a length, the content, and a checksum, so that a sender that dies on the way is told from
// one that was done.
package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"orch/internal/process/redact"
)

// mostBytes bounds a frame. The kernel takes environments of a few MiB at most.
const mostBytes = 32 << 20

// ErrNotWhole means that what came isn't a whole frame: the sender died, or never was one.
var ErrNotWhole = errors.New("the environment didn't arrive whole")

// Bundle is what a run needs and what is written nowhere.
type Bundle struct {
	// Env is the whole environment of the program, but for the mark.
	Env []string
	// Secrets are replaced by their names wherever the program prints them.
	Secrets []redact.Secret
}

// Open is the part of Env that a shim itself is started with. It is open to other processes of the user for the moment until
// the shim protects itself, so it holds nothing but what the shim's own runtime and loader go by.
func (b Bundle) Open() []string {
	own := []string{} // never nil, which would mean all of the launcher's
	for _, entry := range b.Env {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains([]string{"PATH", "LANG", "GORACE"}, name) {
			own = append(own, entry)
		}
	}
	return own
}

// content is a Bundle in bytes: what it holds need not be valid UTF-8, which strings of JSON are.
type content struct {
	Env     [][]byte    `json:"env"`
	Secrets [][2][]byte `json:"secrets"`
}

// Send writes the frame.
func (b Bundle) Send(to io.Writer) error {
	var c content
	for _, entry := range b.Env {
		c.Env = append(c.Env, []byte(entry))
	}
	for _, secret := range b.Secrets {
		c.Secrets = append(c.Secrets, [2][]byte{[]byte(secret.Name), []byte(secret.Value)})
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the environment: %w", err)
	}
	frame := binary.BigEndian.AppendUint64(nil, uint64(len(body)))
	sum := sha256.Sum256(body)
	frame = append(append(frame, body...), sum[:]...)
	if _, err := to.Write(frame); err != nil {
		return fmt.Errorf("send the environment: %w", err)
	}
	return nil
}

// Receive reads one frame; [ErrNotWhole] when what comes isn't one.
func Receive(from io.Reader) (Bundle, error) {
	var length [8]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return Bundle{}, fmt.Errorf("%w: %w", ErrNotWhole, err)
	}
	size := binary.BigEndian.Uint64(length[:])
	if size > mostBytes {
		return Bundle{}, fmt.Errorf("%w: a length of %d", ErrNotWhole, size)
	}
	// Not allocated before it comes: the length may be anything.
	var rest bytes.Buffer
	n, err := io.CopyN(&rest, from, int64(size)+sha256.Size)
	if err != nil {
		return Bundle{}, fmt.Errorf("%w: %d bytes of %d: %w", ErrNotWhole, n, size, err)
	}
	body := rest.Next(int(size))
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], rest.Bytes()) {
		return Bundle{}, fmt.Errorf("%w: wrong checksum", ErrNotWhole)
	}
	var c content
	if err := json.Unmarshal(body, &c); err != nil {
		return Bundle{}, fmt.Errorf("%w: %w", ErrNotWhole, err)
	}
	var b Bundle
	for _, entry := range c.Env {
		b.Env = append(b.Env, string(entry))
	}
	for _, secret := range c.Secrets {
		b.Secrets = append(b.Secrets, redact.Secret{Name: string(secret[0]), Value: string(secret[1])})
	}
	return b, nil
}
