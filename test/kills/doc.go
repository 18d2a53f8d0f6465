// Package kills runs three members of etcd and three tidemark servers on them, each a process of
// its own, and kills and cuts off some of them while clients write, read and watch through the API.
// It then proves from the observations of the clients:
//
//   - The history of each object is linearizable, whichever server a request went to.
//   - Each list is the state at its resourceVersion, and lists never go back in time.
//   - Each watch has every change once, in order, and continues after each cut without a relist, unless a
//     compaction was faster.
//   - Acknowledged writes are in the history; rejected ones are not.
//
// The tests run in the full tier. There are 100 kills, and -kills sets another number.
package kills
