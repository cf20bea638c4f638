package db

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Migration is one file of SQL that takes the schema one step further.
type Migration struct {
	Version int    // NNNN of the file's name
	Name    string // the whole name without .sql: 0001_orch
	SHA256  string // of the file, in hex
	SQL     string
}

var errMigrationFiles = errors.New("unusable migration files")

// LoadMigrations reads NNNN_name.sql from the top of fsys, in order. Numbers start at 0001 and leave no gap.
func LoadMigrations(fsys fs.FS) ([]Migration, error) {
	names, err := fs.Glob(fsys, "*.sql") // sorted
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	pattern := regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+$`)
	migrations := make([]Migration, 0, len(names))
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".sql")
		match := pattern.FindStringSubmatch(name)
		if match == nil {
			return nil, fmt.Errorf("%w: %s isn't named NNNN_name.sql", errMigrationFiles, file)
		}
		version, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, fmt.Errorf("number of migration %s: %w", file, err)
		}
		if want := len(migrations) + 1; version != want {
			return nil, fmt.Errorf("%w: %s stands where number %04d is expected", errMigrationFiles, file, want)
		}
		sql, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		sum := sha256.Sum256(sql)
		migrations = append(migrations, Migration{Version: version, Name: name, SHA256: hex.EncodeToString(sum[:]), SQL: string(sql)})
	}
	if len(migrations) == 0 {
		return nil, fmt.Errorf("%w: there are none", errMigrationFiles)
	}
	return migrations, nil
}
