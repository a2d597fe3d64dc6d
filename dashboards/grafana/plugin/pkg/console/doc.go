// Package console asks Muster's public HTTP API, v1, in the name of one user. It is all
// that the plugin knows of Muster: there is no other way in.
//
// It must not remember answers: the next question may be another user's.
package console
