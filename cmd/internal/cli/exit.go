package cli

import (
	"errors"
)

// Exit is an error with the exit code that it asks for. It ends the chain of its causes,
// so that nothing is added to it on its way out.
type Exit struct {
	Code int
	Err  error // nil: everything has been said
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// CodeOf is the exit code for an error.
func CodeOf(err error) int {
	var exit *Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return 1
}
