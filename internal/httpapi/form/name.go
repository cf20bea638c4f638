package form

import "strings"

// VariableName says whether a text can name a variable of the environment.
func VariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 200
}

// OwnVariable says whether a variable is one of orch's own settings, secrets among them: agents never get those.
func OwnVariable(name string) bool { return strings.HasPrefix(name, "ORCH_") }

// BranchName says whether git takes a text as the name of a branch; empty means the repository's own.
func BranchName(name string) bool {
	if name == "" {
		return true
	}
	if name == "@" || strings.ContainsAny(name, " ~^:?*[\\\x7f") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for _, c := range name {
		if c < ' ' {
			return false
		}
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, ".") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
