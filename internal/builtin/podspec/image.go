package podspec

import "strings"

// isLatest reports whether an image has the tag latest, or neither a tag nor a digest, which means
// the same. It returns false for an invalid name.
func isLatest(image string) bool {
	tag, digest, ok := splitImage(image)
	return ok && (tag == "latest" || tag == "" && digest == "")
}

// maxImagePath is the maximum length of the path of an image in bytes.
const maxImagePath = 255

// splitImage returns the tag and the digest of the name of an image:
// [host[:port]/]path[:tag][@digest].
func splitImage(image string) (tag, digest string, ok bool) {
	name, digest, digested := strings.Cut(image, "@")
	if digested && !isDigest(digest) || isHexID(image) {
		return "", "", false
	}
	slash := strings.LastIndexByte(name, '/')
	last, tag, tagged := strings.Cut(name[slash+1:], ":")
	if tagged && !isTag(tag) {
		return "", "", false
	}
	name = name[:slash+1] + last
	host, path := "", name
	if first, rest, ok := strings.Cut(name, "/"); ok && isHost(first) {
		host, path = first, rest
		if !isHostPort(host) {
			return "", "", false
		}
	}
	length := len(path)
	if host == "" && !strings.Contains(path, "/") || host == "docker.io" && !strings.Contains(path, "/") {
		length += len("library/") // the implied prefix on the default host
	}
	if length > maxImagePath || !isImagePath(path) {
		return "", "", false
	}
	return tag, digest, true
}

// isHost reports whether the first part of a name with slashes is a host.
func isHost(first string) bool {
	return strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first
}

func isHostPort(host string) bool {
	if strings.HasPrefix(host, "[") { // an IPv6 address
		address, port, ok := strings.Cut(host[1:], "]")
		return ok && address != "" && strings.Trim(address, "0123456789abcdefABCDEF:") == "" && (port == "" || isPort(port))
	}
	if i := strings.IndexByte(host, ':'); i >= 0 {
		if !isPort(host[i:]) {
			return false
		}
		host = host[:i]
	}
	for part := range strings.SplitSeq(host, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' {
			return false
		}
		for i := range len(part) {
			if !isAlnum(part[i]) && part[i] != '-' {
				return false
			}
		}
	}
	return true
}

// isPort reports whether s is a colon and digits.
func isPort(s string) bool {
	return len(s) > 1 && s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// isImagePath reports whether a path is valid: components of lower-case letters and digits,
// separated by a dot, one or two underscores, or dashes.
func isImagePath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || !isLowerAlnum(part[0]) || !isLowerAlnum(part[len(part)-1]) {
			return false
		}
		for i := 0; i < len(part); {
			if isLowerAlnum(part[i]) {
				i++
				continue
			}
			start := i
			for i < len(part) && part[i] == part[start] {
				i++
			}
			switch n := i - start; {
			case part[start] == '-', part[start] == '.' && n == 1, part[start] == '_' && n <= 2:
			default:
				return false
			}
			if !isLowerAlnum(part[i]) { // the last byte is alphanumeric
				return false
			}
		}
	}
	return true
}

func isTag(tag string) bool {
	if tag == "" || len(tag) > 128 || tag[0] == '.' || tag[0] == '-' {
		return false
	}
	for i := range len(tag) {
		if c := tag[i]; !isAlnum(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// isDigest reports whether a digest has a known algorithm and the length of its sums.
func isDigest(digest string) bool {
	algorithm, sum, _ := strings.Cut(digest, ":")
	length := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
	return length > 0 && len(sum) == length && strings.Trim(sum, "0123456789abcdef") == ""
}

// isHexID reports whether s is the ID of an image, which is not a valid name.
func isHexID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func isLowerAlnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func isAlnum(c byte) bool { return isLowerAlnum(c) || c >= 'A' && c <= 'Z' }
