package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/problem"
)

// claimPrefix is where the repository has claims: OWNER/TARGET is a blob that tells the epoch. Claims stay for good, since
// whoever is bound to an old one may come back at any time.
const claimPrefix = "refs/orch/gate/"

const claimText = "orch gate epoch "

// claim is what the repository has of a claim; without an id it has none.
type claim struct {
	id    string // of the blob
	epoch int64
}

// Claim makes c the claim on target. It only ever goes up: a landing that verifies an older one in the transaction that
// moves the target is refused from then on.
func (l *Local) Claim(ctx context.Context, repo forge.Repo, target string, c forge.Claim) error {
	r, err := l.openOwn(repo.Location)
	if err != nil {
		return err
	}
	if err := l.claim(ctx, r, target, c); err != nil {
		return fmt.Errorf("claim %s: %w", target, err)
	}
	return nil
}

func (l *Local) claim(ctx context.Context, r *repository, target string, c forge.Claim) error {
	ref, err := claimRef(target, c)
	if err != nil {
		return err
	}
	now, err := l.readClaim(ctx, r, ref)
	if err != nil {
		return err
	}
	out, err := l.git.Run(ctx, r.gitDir, []byte(claimText+strconv.FormatInt(c.Epoch, 10)+"\n"), "hash-object", "-w", "--stdin")
	if err != nil {
		return fmt.Errorf("write its epoch: %w", problem.Translate(err))
	}
	next := strings.TrimSpace(string(out))
	for {
		switch {
		case now.epoch-maxBehind > c.Epoch:
			return notAClaim(ref)
		case now.epoch > c.Epoch:
			return &forge.ClaimedError{Target: target, Epoch: now.epoch}
		case now.id == next:
			return nil
		}
		from := now.id
		if from == "" {
			from = strings.Repeat("0", len(next))
		}
		failed := l.move(ctx, r, ref, next, from)
		if failed == nil {
			return nil
		}
		before := now // it only goes up, so this ends
		if now, err = l.readClaim(ctx, r, ref); err != nil {
			return err
		}
		if now.id != before.id {
			continue
		}
		if text := problem.Said(failed); strings.Contains(text, "reference broken") || now.id == "" && strings.Contains(text, "reference already exists") {
			return notAClaim(ref) // it is there, but what it names isn't
		}
		return problem.Translate(failed)
	}
}

// claimed reads the claim that a landing is bound to; ErrClaimed when it isn't there (any more).
func (l *Local) claimed(ctx context.Context, r *repository, landing forge.Landing) (ref string, c claim, err error) {
	if landing.Claim.Owner == "" {
		return "", claim{}, nil
	}
	if ref, err = claimRef(landing.Base, landing.Claim); err != nil {
		return "", claim{}, err
	}
	if c, err = l.readClaim(ctx, r, ref); err != nil {
		return "", claim{}, err
	}
	if c.id == "" || c.epoch != landing.Claim.Epoch {
		return "", claim{}, &forge.ClaimedError{Target: landing.Base, Epoch: c.epoch}
	}
	return ref, c, nil
}

func (l *Local) readClaim(ctx context.Context, r *repository, ref string) (claim, error) {
	out, err := l.git.Run(ctx, r.gitDir, []byte(ref+"\n"), "cat-file", "--batch")
	if err != nil {
		return claim{}, fmt.Errorf("read %s: %w", ref, err)
	}
	line, content, _ := strings.Cut(string(out), "\n")
	if line == ref+" missing" {
		return claim{}, nil
	}
	id, _, _ := strings.Cut(line, " ")
	text, isClaim := strings.CutPrefix(strings.TrimSpace(content), claimText)
	epoch, err := strconv.ParseInt(text, 10, 64)
	if !isClaim || err != nil || epoch <= 0 {
		return claim{}, notAClaim(ref)
	}
	return claim{id: id, epoch: epoch}, nil
}

// maxBehind is how many grants a database may have forgotten: a claim that is further ahead was never orch's.
const maxBehind = 1 << 40

// longestClaim is what a target may be called, in bytes, to have a claim by its name: file systems allow 255, and git adds .lock.
const longestClaim = 250

func notAClaim(ref string) error {
	return problem.New(forge.CodeRefused, "if no orch works on that repository, remove that ref", "%s isn't a claim of orch's", ref)
}

// claimRef is one component for the target, so that a branch a is not in the way of a branch a/b, which may follow it.
func claimRef(target string, c forge.Claim) (string, error) {
	if !regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]*$`).MatchString(c.Owner) || c.Epoch <= 0 || target == "" {
		return "", fmt.Errorf("%q can't claim %q with epoch %d", c.Owner, target, c.Epoch)
	}
	name := strings.NewReplacer("%", "%25", "/", "%2F").Replace(target)
	if len(name) > longestClaim {
		sum := sha256.Sum256([]byte(target))
		name = "%" + hex.EncodeToString(sum[:]) // no other target is called so
	}
	return claimPrefix + c.Owner + "/" + name, nil
}
