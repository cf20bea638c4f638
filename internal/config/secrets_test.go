package config_test

import (
	"slices"
	"testing"

	"orch/internal/config"
)

func TestEverySecretOfTheConfigurationIsKnown(t *testing.T) {
	t.Parallel()
	given := map[string]string{}
	for _, v := range config.Variables() {
		if v.Secret {
			given[v.Name] = "value-of-" + v.Name
		}
	}
	given["ORCH_DATABASE_URL"] = "postgres://me:p%40ss-word@db.example/orch?sslmode=disable"
	given["ORCH_DATABASE_LISTEN_URL"] = `host=db.example password='o\'pen sesame' user=me`
	cfg, _, err := config.Load(given)
	if err != nil {
		t.Fatal(err)
	}
	secrets := cfg.Secrets()
	for name, value := range given {
		if !slices.Contains(secrets, config.Revealed{Variable: name, Value: value}) {
			t.Errorf("%s isn't there", name)
		}
	}
	for _, password := range []string{"p@ss-word", "p%40ss-word"} {
		if !slices.Contains(secrets, config.Revealed{Variable: "ORCH_DATABASE_URL", Value: password}) {
			t.Errorf("password %s isn't there", password)
		}
	}
	if !slices.Contains(secrets, config.Revealed{Variable: "ORCH_DATABASE_LISTEN_URL", Value: "o'pen sesame"}) {
		t.Error("the password of the other address isn't there")
	}
	if none := new(config.Config).Secrets(); none != nil {
		t.Errorf("without any: %v", none)
	}
}
