package wire

// ViewsPath is where the console lists and keeps saved views of the inventory.
const ViewsPath = "/api/v1/views"

// SavedQuestion is what a view shows, in the words of SitesPath.
type SavedQuestion struct {
	Query   string   `json:"query"`
	Sort    string   `json:"sort"`
	Columns []string `json:"columns"` // none: those that are shown at first
	Group   string   `json:"group"`
}

// SavedView is one that has a name: the user's own, or one of all users of the tenant.
type SavedView struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	Shared bool   `json:"shared"`
	SavedQuestion
}

// SavedViewList has the views by name, and the tenants in which the user may share some.
type SavedViewList struct {
	Views   []SavedView `json:"views"`
	ShareIn []string    `json:"shareIn"`
}
