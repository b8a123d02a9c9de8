"""The council's live panel: one page, served beside the council. Decides nothing, and changes nothing."""
