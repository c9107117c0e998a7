"""Results for people: tables, figures, pages and the terminal."""
