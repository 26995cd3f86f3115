"""Models of tables: how they are fitted, and what a fitted one knows. No scikit-learn in here."""
