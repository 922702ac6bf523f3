"""Programs of the user's own that free space: started, watched, ended, and asked for their plans."""
