// Package bugs proves which bugs tidemarktest finds. It has five controllers as authors of
// operators write them, and 21 variants with one bug each, which resemble bugs of real
// operators. The tools of tidemarktest must find each bug, without an assertion about it, and
// report nothing for the correct controllers. Only the bug that needs time has an assertion about
// the work of its controller.
//
// Each controller is in a file of its own. A bug is a branch in it: `if r.bug == ...`. The table of
// bugs_test.go names the tool that finds it.
package bugs
