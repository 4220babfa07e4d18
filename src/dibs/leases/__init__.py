"""Claims as other programs and users see them: locked files in one shared folder."""
