package tidemark

import (
	"runtime/debug"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/kubeversion"
)

// release is the version of this source tree.
const release = "0.2.0"

// Version returns the default gitVersion of /version: "v1.37.2+tidemark.0.2.0". The part
// after the plus is build metadata, which clients that compare versions (Helm, kubectl)
// ignore.
func Version() string { return gitVersion(release) }

func gitVersion(own string) string {
	return kubeversion.Current.String() + "+tidemark." + metadata(own)
}

// metadata makes a version valid build metadata: identifiers of letters, digits and hyphens,
// separated by dots.
func metadata(v string) string {
	v = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '.'
	}, strings.TrimPrefix(v, "v"))
	parts := strings.FieldsFunc(v, func(r rune) bool { return r == '.' })
	return strings.Join(parts, ".")
}

// commit returns the revision of the source and its time, if the build recorded them and
// the main module is Tidemark.
func commit() (revision, at string) {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != "github.com/tidemark-dev/tidemark" {
		return "", ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.time":
			at = s.Value
		}
	}
	return revision, at
}
