// Package bugs proves what tidemarktest finds. It has five controllers as authors of operators write
// them, and variants with one bug each, which resemble bugs of real operators. The tools of
// tidemarktest must find each bug, without an assertion about it, and report nothing for the correct
// controllers.
//
// Each controller is in a file of its own. A bug is a branch in it: `if r.bug == ...`. The table of
// bugs_test.go names the tool that finds it.
package bugs
