package pgembed

import (
	"fmt"
	"os"
	"strings"
)

// osRelease returns the words that name this Linux distribution and those it derives from ("ubuntu debian").
func osRelease() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return distribution(string(text))
}

func distribution(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			words = append(words, strings.ToLower(strings.Trim(value, `"'`)))
		}
	}
	return strings.Join(words, " ")
}

// installHint says how to install the server: the command of this distribution, or of all if it is an unknown one.
func installHint(distro string, want int) string {
	debian, alpine, brew := "postgresql", "postgresql17", "postgresql@17"
	if want != 0 {
		debian, alpine, brew = fmt.Sprintf("postgresql-%d", want), fmt.Sprintf("postgresql%d", want), fmt.Sprintf("postgresql@%d", want)
	}
	commands := []struct{ words, label, command string }{
		{"debian ubuntu", "Debian, Ubuntu", "apt-get install " + debian},
		{"fedora rhel centos", "Fedora, RHEL", "dnf install postgresql-server"},
		{"alpine", "Alpine", "apk add " + alpine},
		{"arch", "Arch", "pacman -S postgresql"},
		{"suse opensuse", "SUSE", "zypper install postgresql-server"},
	}
	var all []string
	for _, c := range commands {
		for word := range strings.FieldsSeq(distro) {
			if strings.Contains(" "+c.words+" ", " "+word+" ") {
				return "install it with `" + c.command + "`"
			}
		}
		all = append(all, c.label+" `"+c.command+"`")
	}
	all = append(all, "macOS `brew install "+brew+"`")
	return "install it: " + strings.Join(all, "; ")
}
