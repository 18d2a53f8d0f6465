// Package consistentlist lists and watches a Kubernetes resource with a guarantee
// that the caller states, from API servers of any age.
//
//	pods := clientset.CoreV1().Pods("default")
//	for page, err := range consistentlist.List(ctx, pods, consistentlist.NotOlderThan(r), consistentlist.Options{}) {
//		if err != nil {
//			return err
//		}
//		for i := range page.List.Items {
//			...
//		}
//	}
//
// Servers handle a request for a list in different ways: the meaning of resourceVersion
// depends on whether the list is paged, resourceVersionMatch is not known before
// Kubernetes v1.19, aggregated servers may ignore both. KEP-2523 ("Consistent Resource
// Version Semantics for List", Backward Compatibility) and the API Concepts
// ("Semantics for get and list", "410 Gone responses", "Unavailable resource
// versions") define how a client handles this, and this package follows them: it asks
// for a match, looks at the version that it gets, falls back where the documents say
// so, and gives an *Error rather than a list older than promised.
//
// The requests for each guarantee:
//
//	asked         sent                                 if the server does not know the match
//	MostRecent    no version                           the same response
//	Any           0, NotOlderThan                      the same response
//	NotOlderThan  R, NotOlderThan                      paged: exactly R, or 410: then MostRecent
//	Exact         R, Exact                             paged: exactly R; else maybe newer: then paged
//
// Follow and FollowFrom watch on from a list without a gap. Everything that comes from
// the server is bounded: repeats, waits, pages.
//
// Nothing here keeps state between calls; a client that is safe for concurrent use
// may be used in many at once. One iterator belongs to one goroutine.
package consistentlist
