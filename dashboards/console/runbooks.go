package console

import (
	"net/http"

	"muster.dev/muster/internal/runbooks"
)

// runbookView is the answer of GET /api/v1/runbooks/{alert}.
type runbookView struct {
	Alert    string `json:"alert"`
	Markdown string `json:"markdown"`
}

// getRunbook serves the texts that ship with Muster. They are the same for all, and no secret.
func (c *Console) getRunbook(w http.ResponseWriter, cl *call) error {
	name := cl.PathValue("alert")
	text, ok := runbooks.Text(name)
	if !ok {
		return notFound("there is no runbook for %q: those of your own rules are where their runbook_url says", printable(name))
	}
	return writeJSON(w, http.StatusOK, runbookView{Alert: name, Markdown: text})
}
