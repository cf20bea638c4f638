package app

import "runtime/debug"

// Version is set by the build (-ldflags "-X orch/internal/app.Version=…"); empty means that the module's is used.
var Version string //nolint:gochecknoglobals // the linker can only set a variable

// ProgramVersion names this program: the version of the build, else what the Go tool recorded.
func ProgramVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
