package registry

import (
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// read is one of the reads of the specification.
type read int

const (
	refused      read = iota // validation error, or 400
	mostRecent               // includes every write acknowledged before the request
	anyState                 // whatever state is available
	notOlderThan             // at least as new as N
	exactly                  // as of N
	continued                // as of the revision of the token
)

// version is a class of resourceVersion values.
type version int

const (
	unset version = iota
	zero
	number
)

// tableRow maps a combination of parameters to a read. The first row that fits counts.
type tableRow struct {
	version version
	match   string // resourceVersionMatch
	limit   flag
	token   flag
	read    read
}

type flag int

const (
	either flag = iota
	without
	with
)

// listTable is the table of "API Concepts" and KEP-2523 for lists: it maps resourceVersion,
// resourceVersionMatch, limit and continue to a state. Combinations that are not in it are refused.
//
// With version 0 the limit is ignored, as in kube-apiserver: any state will do, so the whole list is
// as good as a chunk. That goes for a continuation too, which returns all that is left.
var listTable = []tableRow{
	{unset, "", either, without, mostRecent},
	{unset, "", either, with, continued},
	{zero, "", either, without, anyState},
	{zero, "", either, with, continued},
	{number, "", without, without, notOlderThan},
	{number, "", with, without, exactly},
	{number, "Exact", either, without, exactly},
	{zero, "NotOlderThan", either, without, anyState},
	{number, "NotOlderThan", either, without, notOlderThan},
}

// getTable is the table for get.
var getTable = map[version]read{unset: mostRecent, zero: anyState, number: notOlderThan}

// plan is how a list is read.
type plan struct {
	read     read
	revision store.Revision // of notOlderThan, exactly, continued
	limit    int            // zero: none
	after    string         // of continued: the key, relative to the list, to continue after
	latest   bool           // of continued: the token asks for the newest state
}

// planList returns how a list is read, or why it is refused.
func planList(o *metainternal.ListOptions) (plan, error) {
	if errs := validation.ValidateListOptions(o, true); len(errs) > 0 {
		return plan{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	var begin token
	if o.Continue != "" {
		var err error
		if begin, err = decodeToken(o.Continue); err != nil {
			return plan{}, err
		}
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return plan{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
	}
	class, revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return plan{}, err
	}
	p := plan{read: lookupRead(class, o), revision: revision}
	if o.Limit > 0 && class != zero {
		p.limit = int(min(o.Limit, 1<<31-1))
	}
	switch p.read {
	case refused:
		return plan{}, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q with resourceVersionMatch %q cannot be served", o.ResourceVersion, o.ResourceVersionMatch))
	case continued:
		p.after, p.latest = begin.after, begin.revision < 0
		p.revision = store.Revision(max(begin.revision, 0))
	}
	return p, nil
}

func lookupRead(class version, o *metainternal.ListOptions) read {
	for _, row := range listTable {
		if row.fits(class, o) {
			return row.read
		}
	}
	return refused
}

func (row tableRow) fits(class version, o *metainternal.ListOptions) bool {
	return row.version == class && row.match == string(o.ResourceVersionMatch) &&
		row.limit.fits(o.Limit > 0) && row.token.fits(o.Continue != "")
}

func (f flag) fits(is bool) bool { return f == either || (f == with) == is }

// parseVersion parses a resourceVersion: decimal digits without a sign. Anything else is a client
// error.
func parseVersion(text string) (version, store.Revision, error) {
	if text == "" {
		return unset, 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return unset, 0, apierrors.NewBadRequest("invalid resource version: " + field.Invalid(field.NewPath("resourceVersion"), text, err.Error()).Error())
	case n == 0:
		return zero, 0, nil
	}
	return number, store.Revision(n), nil
}
