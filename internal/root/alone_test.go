package root

import (
	"errors"
	"testing"

	"orch/internal/testdb"
)

func TestOneProcessOfARootDoesAThingAtATime(t *testing.T) {
	t.Parallel()
	r := bind(t, dir(t), testdb.New(t), Config{})
	broken := errors.New("broken")
	did, err := r.Alone("sweep", func() error {
		again, err := r.Alone("sweep", func() error { t.Error("done twice at once"); return nil })
		if again || err != nil {
			t.Errorf("a second one: %t, %v", again, err)
		}
		if other, err := r.Alone("another", func() error { return nil }); !other || err != nil {
			t.Errorf("another thing: %t, %v", other, err)
		}
		return broken
	})
	if !did || !errors.Is(err, broken) {
		t.Errorf("the first one: %t, %v", did, err)
	}
	if did, err := r.Alone("sweep", func() error { return nil }); !did || err != nil {
		t.Errorf("afterwards: %t, %v", did, err)
	}
}
