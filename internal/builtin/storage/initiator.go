package storage

import "strings"

// isInitiator reports whether a name of iSCSI has one of its three forms:
// iqn.2001-04.com.example:storage, eui.0123456789abcdef, naa. with 32 digits.
func isInitiator(name string) bool {
	kind, rest, _ := strings.Cut(name, ".")
	switch kind {
	case "iqn":
		return isQualified(rest)
	case "eui":
		return len(rest) == 16 && only(rest, "")
	case "naa":
		return len(rest) == 32 && only(rest, "")
	}
	return false
}

// isQualified reports whether text is a date, a domain, a colon and a non-empty suffix:
// 2001-04.com.example:storage.
func isQualified(text string) bool {
	date, rest, _ := strings.Cut(text, ".")
	domain, own, _ := strings.Cut(rest, ":")
	digits := len(date) == 7 && date[4] == '-' && strings.Trim(date[:4]+date[5:], "0123456789") == ""
	return digits && domain != "" && only(domain, "-.") && own != "" && !strings.ContainsAny(own, ",;*&$| \t\n\f\r")
}

// only reports whether a text has letters, digits and some other characters alone.
func only(text, others string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(others, r)
	})
}
